"""Types, intrinsics, Params and the epilogue: included by every family."""
