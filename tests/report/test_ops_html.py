"""The page of an operator table: every line is there, safe, and can be searched."""

import re

from made_up_operators import FASTER, KEEPS, LOSES, SLOWER, row, survey

from nhwc.report.ops.to_html import render_html


def test_every_line_shows_its_verdicts_values_and_speeds() -> None:
    page = render_html(survey())
    (line,) = re.findall(r"<tr [^>]*data-text=\"avg_pool3d operator\".*?</tr>", page)
    cells = [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", line)]
    why = cells.pop(0)
    assert why.startswith("avg_pool3d")
    assert "(2, 4, 3, 3) with strides (36, 9, 3, 1)" in why
    assert cells == ["3-D", "fp32", "loses", "loses", "keeps", "right", "0.50 (0.45 to 0.55)", "–"]
    assert 'data-problem="1"' in line


def test_lines_without_a_problem_are_marked_so() -> None:
    assert 'data-problem="0"' in render_html(survey(row("relu")))


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    page = render_html(survey(row("<script>alert(1)</script>", forward=KEEPS)))
    assert "<script>alert" not in page
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=", page)


def test_a_line_names_its_kernels_and_the_speed_of_every_dtype() -> None:
    served = {"dims": 3, "kernels": ("avg_pool3d", "conversion")}
    rows = [
        row("avg_pool3d", forward=LOSES, speed=SLOWER, **served),
        row("avg_pool3d", forward=LOSES, speed=FASTER, dtype="bfloat16", **served),
        row("avg_pool3d", mode="kernels", **served),
    ]
    page = render_html(survey(*rows, modes=("eager", "kernels")))
    before, after = re.findall(r"<tr [^>]*data-text=\"avg_pool3d operator\".*?</tr>", page)
    assert 'data-kernel="avg_pool3d conversion"' in before
    told = re.sub(r"<[^>]+>", " ", before)
    assert "fp32 bf16" in told
    assert "fp32 0.50 (0.45 to 0.55)" in told
    assert "bf16 2.00 (1.80 to 2.20)" in told
    assert (">eager<" in before, ">kernels<" in after) == (True, True)
    assert '<option value="none">none</option><option>avg_pool3d</option>' in page


def test_what_lines_can_be_narrowed_down_to_is_what_the_table_has() -> None:
    page = render_html(survey())
    (dtypes,) = re.findall(r'<select name="dtypes">(.*?)</select>', page)
    assert re.findall(r"<option>(\w+)</option>", dtypes) == ["fp32", "bf16"]


def test_columns_without_content_are_left_out() -> None:
    assert "speed, forward" not in render_html(survey(row("relu")))
    assert "speed, forward" in render_html(survey())
    for column in ("kernel", "mode"):
        assert f'<button type="button">{column}</button>' not in render_html(survey())
