use super::*;

fn of(line: &str) -> Vec<String> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    candidates(&words, |image| match image.to_str() {
        Some("d.vfs") => ["main", "trial", "tria\nl"].map(str::to_owned).into(),
        _ => Vec::new(),
    })
}

#[test]
fn branches_of_the_image_are_known() {
    for line in [
        "vfscale branch delete d.vfs ",
        "vfscale branch rollback d.vfs ",
        "vfscale diff d.vfs ",
        "vfscale diff --json d.vfs main ",
        "vfscale adopt d.vfs ",
        "vfscale run d.vfs --branch ",
        "vfscale mount --branch x d.vfs --branch ",
        "vfscale stat d.vfs --branch ",
        "vfscale branch create d.vfs --from ",
        "vfscale branch send d.vfs:trial --since ",
    ] {
        assert_eq!(of(line), ["main", "trial"], "{line}");
    }
    assert_eq!(of("vfscale branch delete d.vfs tr"), ["trial"]);
    assert_eq!(of("vfscale run d.vfs --branch=m"), ["--branch=main"]);
    assert_eq!(of("vfscale mount d.vfs -o ro,branch=t"), ["ro,branch=trial"]);
    assert_eq!(of("vfscale ls d.vfs:"), ["d.vfs:main", "d.vfs:trial"]);
    assert_eq!(of("vfscale cat -q d.vfs:t"), ["d.vfs:trial"]);
    assert_eq!(of("vfscale branch send d.vfs:t"), ["d.vfs:trial"]);
}

#[test]
fn what_the_shell_knows_is_left_to_it() {
    for line in [
        "vfscale",
        "vfscale ",
        "vfscale bra",
        "vfscale branch delete ",
        "vfscale branch create d.vfs ",
        "vfscale branch delete none.vfs ",
        "vfscale run d.vfs -- ",
        "vfscale ls d.vfs:/et",
        "vfscale run d.vfs --bra",
    ] {
        assert!(of(line).is_empty(), "{line}");
    }
}

#[test]
fn options_of_mounts_are_known() {
    let found = of("vfscale mount d.vfs m -o ro,no");
    assert!(found.contains(&"ro,noatime".to_owned()), "{found:?}");
    assert!(of("vfscale mount d.vfs m -o br").contains(&"branch=".to_owned()));
    assert!(of("vfscale mount d.vfs m -o cache").contains(&"cache_size=".to_owned()));
}
