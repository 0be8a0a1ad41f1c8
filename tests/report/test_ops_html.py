"""The page of an operator table: every line is there, safe, and can be searched."""

import re

from made_up_operators import KEEPS, row, survey

from nhwc.report.ops.to_html import render_html


def test_every_line_shows_its_verdicts_values_and_speeds() -> None:
    page = render_html(survey())
    (line,) = re.findall(r"<tr [^>]*data-text=\"avg_pool3d operator\".*?</tr>", page)
    cells = [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", line)]
    why = cells.pop(0)
    assert why.startswith("avg_pool3d")
    assert "(2, 4, 3, 3) with strides (36, 9, 3, 1)" in why
    assert cells == ["operator", "3-D", "fp32", "loses", "loses", "keeps", "right", "0.50 (0.45 to 0.55)", "–"]
    assert 'data-problem="1"' in line


def test_lines_without_a_problem_are_marked_so() -> None:
    assert 'data-problem="0"' in render_html(survey(row("relu")))


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    page = render_html(survey(row("<script>alert(1)</script>", forward=KEEPS)))
    assert "<script>alert" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=", page)


def test_columns_without_content_are_left_out() -> None:
    assert "speed, forward" not in render_html(survey(row("relu")))
    assert "speed, forward" in render_html(survey())
