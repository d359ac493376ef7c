use super::fact;
use crate::checkpoint::index::Index;
use crate::error::Fact;

fn refuse(text: impl AsRef<[u8]>, code: &str) -> crate::error::Error {
    let shown = String::from_utf8_lossy(text.as_ref()).into_owned();
    let error = Index::parse(text.as_ref()).err().unwrap_or_else(|| panic!("accepted: {shown}"));
    assert_eq!(error.code, code, "{shown}: {error}");
    error
}

#[test]
fn keeps_files_in_order_of_first_mention() {
    let index =
        Index::parse(br#"{"metadata":{"total_size":"216"},"weight_map":{"b":"2","a":"1","\u0063":"2"},"x":[1]}"#).expect("an index");
    assert_eq!(index.names.iter().collect::<Vec<_>>(), ["b", "a", "c"]);
    assert_eq!(index.files.iter().collect::<Vec<_>>(), ["2", "1"]);
    assert_eq!(index.file_of, [0, 1, 0]);
}

#[test]
fn refuses_what_is_no_index() {
    let code = "ERR_CHECKPOINT_INDEX_INVALID";
    for text in [
        "",
        "[]",
        "null",
        "{",
        "{}",
        r#"{"weight_map":[]}"#,
        r#"{"weight_map":null}"#,
        r#"{"weight_map":{}}"#,
        r#"{"weight_map":{"a":1}}"#,
        r#"{"weight_map":{"a":null}}"#,
        r#"{"weight_map":{"a":""}}"#,
        r#"{"weight_map":{"a":"x\u0000y"}}"#,
        r#"{"weight_map":{"a":"x"}} {}"#,
        r#"{"weight_map":{"a":"\ud800"}}"#,
        "\u{feff}{\"weight_map\":{\"a\":\"x\"}}",
    ] {
        refuse(text, code);
    }
    refuse(b"{\"weight_map\":{\"\xff\":\"x\"}}", code);
    let error = refuse("version https://git-lfs.github.com/spec/v1\n", code);
    assert!(error.message.contains("Git-LFS"), "{error}");
    let error = refuse("../../blobs/8c2838ef07", code);
    assert!(error.message.contains("symbolic link"), "{error}");
}

#[test]
fn refuses_keys_that_occur_twice() {
    let code = "ERR_CHECKPOINT_DUPLICATE_KEY";
    let error = refuse(r#"{"weight_map":{"a":"1","\u0061":"2"}}"#, code);
    assert_eq!(fact(&error, "tensor"), Some(&Fact::from("a")));
    refuse(r#"{"weight_map":{"a":"1"},"weight_map":{"a":"1"}}"#, code);
    refuse(r#"{"metadata":{"k":1,"k":2},"weight_map":{"a":"1"}}"#, code);
}
