"""window: depthwise convolution and pooling."""
