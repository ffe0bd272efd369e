"""The modes of a GPU: who may compute on it, and whether it stays initialised."""
