"""The table of results: cases x modes, in Markdown.

TURN_E2E_TABLE=FILE   write it there, and what it is made of to FILE.json: later runs add to that
"""
import json
import os

COLUMNS = ["steered", "dedicated", "shared-1", "shared-8"]


class Table:
    def __init__(self):
        self.path = os.environ.get("TURN_E2E_TABLE")
        self.cases = {}
        if self.path and os.path.exists(self.path + ".json"):
            with open(self.path + ".json") as f:
                self.cases = json.load(f)

    def add(self, case, column, text):
        self.cases.setdefault(case, {})[column] = text
        if self.path:
            with open(self.path + ".json", "w") as f:
                json.dump(self.cases, f, indent=1)
            with open(self.path, "w") as f:
                f.write(self.markdown())

    def markdown(self):
        plain = _markdown(self.cases, COLUMNS)
        without = _markdown(self.cases, [c + ", no capabilities" for c in COLUMNS[1:]])
        return plain + ("\n" + without if without else "")


def _markdown(cases, columns):
    rows = [(case, [found.get(c, "-") for c in columns]) for case, found in cases.items()
            if any(c in found for c in columns)]
    if not rows:
        return ""
    lines = ["| case | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += ["| %s | %s |" % (case, " | ".join(cells)) for case, cells in rows]
    return "\n".join(lines) + "\n"


TABLE = Table()
