"""The cases: tables of requests, from which sequences are made."""
