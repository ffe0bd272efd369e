"""Cases of preemption for claims: who has to go."""
