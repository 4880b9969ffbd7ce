"""winograd: F(2 x 2, 3 x 3) convolution in float32."""
