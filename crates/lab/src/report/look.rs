//! The page as a browser shows it: on a desk and on a phone, dark and light.

use std::{fs, process::Command};

use super::page::{page, tests::results};

/// Pixels.
const WIDTHS: [u32; 2] = [1280, 390];

/// What [`look.js`](look.js) says of a page.
fn looked(page: &str, width: u32, is_dark: bool) -> (Vec<String>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("look.html");
    // A browser's window is never as narrow as a phone; a frame in it is.
    let frame = format!(
        "<!DOCTYPE html><meta charset=utf-8><body><iframe style=\"width:{width}px;height:800px;border:0\"></iframe>\
         <pre></pre><script>{}\nconst frame = document.querySelector('iframe');\n\
         frame.onload = () => {{ document.querySelector('pre').textContent = look(frame).join('\\n'); }};\n\
         frame.srcdoc = {};</script>",
        include_str!("look.js"),
        serde_json::to_string(page).unwrap().replace("</", "<\\/")
    );
    fs::write(&file, frame).unwrap();
    let scheme = if is_dark { 0 } else { 1 };
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--window-size=1400,900",
        ])
        .args(["--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("apt-get install chromium");
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text
        .split_once("<pre>")
        .and_then(|(_, rest)| rest.split_once("</pre>"));
    let found = found.map(|(found, _)| found.lines().map(str::to_owned).collect());
    let said = String::from_utf8_lossy(&output.stderr);
    let console = said.lines().filter(|line| line.contains("CONSOLE"));
    (found.unwrap_or_default(), console.collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_browser_shows_the_page_as_it_is_meant() {
    let page = page(&results());
    let charts = page.matches("<svg class=\"chart\"").count();
    for width in WIDTHS {
        for (is_dark, scheme) in [(true, "dark, light on dark"), (false, "light, dark on light")] {
            let (found, console) = looked(&page, width, is_dark);
            let expected = format!("looked: {width} wide, {scheme}, charts {charts}, texts true");
            assert_eq!((&found[..], &console[..]), (&[expected][..], ""));
        }
    }
}

#[test]
fn what_a_reader_would_not_like_is_found() {
    let page = page(&results()).replace(
        "</body>",
        "<p style=\"width:500px\">wide</p><p style=\"color:#999;background:#fff\">faint</p>\
         <svg class=chart><text x=380 y=10>cut off here</text></svg><script>throw 1</script></body>",
    );
    let (found, console) = looked(&page, 390, false);
    for words in [
        "the page is ",
        "contrast 2.85",
        "a chart has no mark",
        "a word of a chart is cut",
    ] {
        assert!(
            found.iter().any(|line| line.contains(words)),
            "{words}: {found:?}"
        );
    }
    assert!(console.contains("Uncaught 1"), "{console}");
}
