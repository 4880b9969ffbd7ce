"""From a call to a launch: keys, Plans, and the Runtime that holds them."""
