//! Workers: the processes that do the work of attempts, and nothing of them left behind.
