use super::*;

/// Writes once and flushes; returns whether the write asks, and whether the flush does.
fn write_and_flush(proof: &Proof) -> (bool, bool) {
    let number = proof.write_begun();
    number.iter().for_each(|number| proof.asked(*number));
    (number.is_some(), proof.flush_begun())
}

#[test]
fn each_flush_after_a_single_write_has_one_question() {
    let proof = Proof::default();
    assert_eq!(write_and_flush(&proof), (false, true), "nothing is known yet");
    for _ in 0..3 {
        assert_eq!(write_and_flush(&proof), (true, false));
    }
}

#[test]
fn an_answer_serves_one_flush() {
    let proof = Proof::default();
    write_and_flush(&proof);
    assert_eq!(write_and_flush(&proof), (true, false));
    assert!(proof.flush_begun(), "a flush without a write");
    assert!(proof.flush_begun(), "and one more");
}

#[test]
fn a_write_after_the_question_needs_another() {
    let proof = Proof::default();
    write_and_flush(&proof);
    let number = proof.write_begun().unwrap();
    assert_eq!(proof.write_begun(), None, "another thread's write");
    proof.asked(number);
    assert!(proof.flush_begun());
}

#[test]
fn a_bad_answer_is_no_proof() {
    let proof = Proof::default();
    write_and_flush(&proof);
    assert!(proof.write_begun().is_some(), "its question fails");
    assert!(proof.flush_begun());
}

#[test]
fn writes_without_flushes_do_not_ask() {
    let proof = Proof::default();
    write_and_flush(&proof);
    assert!(proof.write_begun().is_some());
    assert!((0..10).all(|_| proof.write_begun().is_none()));
    assert!(proof.flush_begun());
    assert_eq!(write_and_flush(&proof), (false, true), "there were eleven writes for that flush");
    assert_eq!(write_and_flush(&proof), (true, false));
}
