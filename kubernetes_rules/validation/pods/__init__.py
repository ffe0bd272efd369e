"""What is wrong with pods: of claims and resources all rules, of the rest common mistakes."""
