"""Work cut into tasks, and the executors that run them: this machine's processes and threads, or a cluster."""
