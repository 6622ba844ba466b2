//! Tests of the names of places.

use super::*;

fn parts(text: &str) -> (String, Option<String>, String) {
    let is_image = |path: &Path| path == Path::new("a:b.vfs");
    let place = Place::parse(OsStr::new(text), is_image);
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    (words(&place.image), place.branch.clone(), words(&place.path))
}

#[test]
fn a_place_is_an_image_a_branch_and_a_path() {
    for (text, image, branch, path) in [
        ("d.vfs", "d.vfs", None, "/"),
        ("d.vfs:/", "d.vfs", None, "/"),
        ("d.vfs:/a:b/c", "d.vfs", None, "/a:b/c"),
        ("d.vfs:trial", "d.vfs", Some("trial"), "/"),
        ("/x/d.vfs:run 1:/a:/b", "/x/d.vfs", Some("run 1"), "/a:/b"),
        ("./x:y/d.vfs", "./x:y/d.vfs", None, "/"),
        ("a:b.vfs", "a:b.vfs", None, "/"),
        ("a:b.vfs:trial:/f", "a:b.vfs", Some("trial"), "/f"),
        ("rbd:pool/image", "rbd:pool/image", None, "/"),
        ("rbd:pool/image@snap:trial:/f", "rbd:pool/image@snap", Some("trial"), "/f"),
        ("d.vfs:", "d.vfs:", None, "/"),
    ] {
        assert_eq!(parts(text), (image.into(), branch.map(str::to_owned), path.into()), "{text}");
    }
}
