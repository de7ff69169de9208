"""Medians, spreads, paired ratios and the two outputs: markdown for people, JSON for programs."""

import json
import statistics


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def show(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def spread(values, digits=0):
    """median (lowest-highest)"""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def paired_ratios(values, base):
    """Round by round, so that what drifts slowly drops out."""
    return [a / b for a, b in zip(values, base) if a is not None and b]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


class Report:
    def __init__(self, title, settings):
        self.title, self.settings = title, settings
        self.parts, self.data, self.warnings = [], {}, []

    def add_table(self, caption, head, rows):
        self.parts.append(f"\n{caption}\n\n{table(head, rows)}")

    def add_line(self, text):
        self.parts.append(f"\n{text}")

    def warn(self, text):
        if text not in self.warnings:
            self.warnings.append(text)

    def markdown(self):
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        text = f"## {self.title}\n\n{settings}\n" + "\n".join(self.parts)
        if self.warnings:
            text += "\n\nWarnings:\n" + "\n".join(f"- {warning}" for warning in self.warnings)
        return text

    def write(self, json_path):
        print(self.markdown(), flush=True)
        if json_path:
            with open(json_path, "w", encoding="utf-8") as out:
                json.dump({"title": self.title, "settings": self.settings, "data": self.data,
                           "warnings": self.warnings}, out, indent=1)
