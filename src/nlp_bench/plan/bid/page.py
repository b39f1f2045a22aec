"""A bid sheet as one HTML page that prints on paper; it loads nothing."""

from nlp_bench import __version__
from nlp_bench.plan.bid.bid import Bid
from nlp_bench.plan.bid.sheet import commitment, sections, signatures, title
from nlp_bench.show.escape import html_text
from nlp_bench.show.page import asset, digest, render

STYLE = """
main, footer { max-width: 60rem; }
.bid th, .bid td { white-space: normal; } .bid td { overflow-wrap: break-word; }
.bid td:first-child { color: var(--muted); } .bid table:not(:has(thead)) td:first-child { width: 14rem; }
.bid h2 { margin: 1.1rem 0 .35rem; } .bid table { font-size: .85rem; } .bid th, .bid td { padding: .25rem .6rem; } .bid ul { font-size: .88rem; }
.sign { display: grid; grid-template-columns: 1fr 1fr; gap: 2rem; margin-top: 2.5rem; break-inside: avoid; }
.sign p { border-top: 1px solid var(--muted); padding-top: .3rem; color: var(--muted); font-size: .85rem; }
@page { size: A4 portrait; margin: 11mm; }
@media print {
  .bid { font-size: 8pt; } .bid h1 { font-size: 13pt; margin: 0 0 .3rem; } .bid h2 { font-size: 9pt; margin: .45rem 0 .15rem; }
  .bid table, .bid ul { font-size: 7.2pt; line-height: 1.25; } .bid th, .bid td { padding: .08rem .4rem; } .bid li { margin: 0; }
  .bid .verdict { font-size: 9.5pt; padding: .4rem .7rem; } .bid pre { font-size: 6.6pt; line-height: 1.3; padding: .3rem .5rem; }
  .sign { margin-top: 1.6rem; } footer { display: none; }
}
"""
"""On top of the style sheet of the reports."""


def page(bid: Bid) -> str:
    """Return the sheet as one HTML document."""
    style = asset("page.css") + STYLE
    policy = f"default-src 'none'; style-src '{digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    parts = [render(section, f"b{place}", 2) for place, section in enumerate(sections(bid))]
    signed = "".join(f"<p>{html_text(who)}: name, date, signature</p>" for who in signatures())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">\n'
        f"<title>{html_text(title(bid))}</title>\n<style>{style}</style></head>\n"
        f'<body><main class="bid"><header><h1>{html_text(title(bid))}</h1>'
        f'<div class="verdict plain"><p>{html_text(commitment(bid))}</p></div></header>\n{"".join(parts)}\n'
        f'<div class="sign">{signed}</div></main>\n<footer>nlp-bench {html_text(__version__)}</footer></body></html>\n'
    )
