"""One module per public function: the Workload that kernels compute for a call, and the array library's equivalent."""
