//! Tests the page of a report in a real browser.
//!
//! ```sh
//! apt-get install chromium-headless-shell
//! cargo test -p vfscale-bench --test all browser -- --ignored
//! ```

use std::process::Command;
use std::time::Duration;

use vfscale_bench::{Interrupt, Plan, TargetSpec, html, run, workloads};

/// A script that stores measures of the rendered page into its title, which `--dump-dom` prints.
const PROBE: &str = "<script>
const page = document.documentElement;
const drawn = [...document.querySelectorAll('svg')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 100 && box.height > 50 && box.right <= innerWidth;
});
const seen = [innerWidth, page.scrollWidth, drawn.length, document.querySelectorAll('tbody tr').length];
document.title = 'probe ' + seen.join(' ') + ' end';
</script></body>";

#[test]
#[ignore = "needs chromium-headless-shell"]
fn the_page_fits_a_phone_and_a_desk() {
    let names = ["stat-deep", "open-close-own-dir", "create-many"];
    let found = names.map(|name| workloads::find(name).unwrap());
    let mut plan = Plan::new(found.into(), vec![TargetSpec::Memory]);
    plan.threads = vec![1, 2];
    plan.before = vec![vec!["all".into()]];
    plan.files = 100;
    plan.slice = Duration::from_millis(1);
    plan.warm_up = Duration::from_millis(1);
    let report = run(&plan, &Interrupt::new(), &mut ()).unwrap();
    let page = html::render(&report, true).unwrap().replace("</body>", PROBE);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    for width in [390, 1280] {
        let output = Command::new("chromium-headless-shell")
            .args(["--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg(format!("--window-size={width},800"))
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let seen = dom.split_once("<title>probe ").unwrap().1.split_once(" end").unwrap().0;
        let numbers: Vec<usize> = seen.split(' ').map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[0], width, "{seen}");
        assert!(numbers[1] <= width, "it is wider than the screen: {seen}");
        assert_eq!(numbers[2], names.len(), "plots that are drawn and fit: {seen}");
        // At least a row for each case of each workload in its own table.
        assert!(numbers[3] >= names.len() * 4, "{seen}");
    }
}
