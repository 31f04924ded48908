"""The coordinator as a process: its threads, the queue between them, and a stand-by that waits for its turn to lead."""
