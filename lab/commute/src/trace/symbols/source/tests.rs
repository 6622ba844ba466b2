use super::*;

const TEXT: &str = "\
struct A;
fn free() {
    let x = self.b;
}
impl<T: Fn() -> u8> Clone for a::Thing<T>
where
    T: Send,
{
    fn f(&self) {
        if self.count.value.load() == 1 {
            self.lock();
        }
        drop(&self.0);
    }
}
unsafe impl Other {
    fn g(&self) -> u8 { self.list }
}
";

#[test]
fn a_line_tells_its_type_and_field() {
    let lines: Vec<String> = TEXT.lines().map(str::to_owned).collect();
    let at = |line: usize| {
        let LineFacts { this, field } = known(&lines, line - 1);
        (this.unwrap_or_default(), field.unwrap_or_default())
    };
    let owned = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(at(3), owned("", ""));
    assert_eq!(at(10), owned("Thing", "Thing.count.value"));
    assert_eq!(at(11), owned("Thing", ""));
    assert_eq!(at(13), owned("Thing", "Thing.0"));
    assert_eq!(at(17), owned("Other", "Other.list"));
    assert_eq!(known(&lines, usize::MAX), LineFacts::default());
}
