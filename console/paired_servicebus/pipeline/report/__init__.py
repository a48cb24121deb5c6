"""What happened, for a person at nine in the morning: from the tables alone, with duckdb; no Spark, no engine.

    incident   values: an incident is a chain of episodes that touch     reading   the tables to these values
    timeline   events to sentences in order                              prose     values to Markdown
    plots      values to SVG                                             command   what `paired report` does

Rules: every figure says what it is of and when the tables were written; what they do not hold is said, not guessed.
"""
