"""Judges messages by their receipts: the SQL of receipts, audit and verdicts (SPEC.md section 11).

A judgement, in Spark or in duckdb (after its sql_engine.WORDS), from the views events, engines, backlog and the known
receipts, in the columns of the table store's schema:

    receipts  MERGE.format(partials=f"(select * from known union all {PARTIAL.format(events=…, engines=…)})")
    audit     JUDGED.format(receipts=…, engines=…, backlog=…, now=…, in_flight=micros(IN_FLIGHT)), after PARTS
    verdicts  verdicts_sql(engines=…, now=…), after parts_sql(audit=…, receipts=…)
"""
