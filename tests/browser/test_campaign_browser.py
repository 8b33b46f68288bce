"""The report of a real campaign, opened in a real browser."""

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_of_a_campaign_is_quiet_complete_and_fits(campaign, visit, width):
    page = visit(campaign.report, width)
    assert page.driver.title == "Piecewise CUDA graphs at the FlashInfer border"
    assert page.console == () and page.requests == ()
    assert page.ask("document.documentElement.scrollWidth") <= width
    images = page.ask("[...document.images].map(i => [i.naturalWidth, i.alt])")
    assert len(images) == 3 and all(wide > 0 and alt for wide, alt in images)


def test_it_opens_with_the_verdict_and_the_matrix_links_to_what_decided(campaign, visit):
    page = visit(campaign.report)
    text = page.ask("document.body.innerText")
    assert text.index("stops at _thread.allocate_lock") < text.index("A row a patch level")
    links = page.ask("[...document.querySelectorAll('td a')].map(a => a.getAttribute('href'))")
    assert "#level-1-warm" in links
    assert all(page.ask(f"document.getElementById('{link[1:]}') !== null") for link in links)


def test_it_is_one_small_file(campaign):
    assert campaign.report.stat().st_size < 5_000_000
    assert [path.name for path in campaign.report.parent.iterdir()] == ["index.html"]
