use super::fetch::missing;
use super::{Location, Marker, Whole};

#[test]
fn a_place_is_a_bucket_and_a_prefix() {
    for text in ["s3://b/p", "gs://my-bucket/of/monday", "az://c/2026=11/a_b+c.d"] {
        assert!(Location::is_meant(text));
        assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
    }
    assert_eq!("s3://b/p/".parse::<Location>().unwrap().to_string(), "s3://b/p");
    let refused = [
        "s3://b",
        "s3://b/",
        "s3:///p",
        "s3://b//p",
        "s3://b/../p",
        "s3://b/p?x",
        "s3://u:p@b/p",
        "s3://b/a b",
        "ftp://b/p",
        "/var/lib",
        "s3://b/%2e",
    ];
    for text in refused {
        assert!(text.parse::<Location>().is_err(), "{text}");
    }
    assert!(!Location::is_meant("/var/lib/forebay"));
}

#[test]
fn what_is_not_there_is_named() {
    let file = |number: u32| (format!("traffic-{number:06}.fbt"), 10);
    let mut marker = Marker::new(&[1, 255], "/spool".as_ref());
    assert_eq!(marker.folder, "01ff");
    let told = |found: &[(String, u64)], marker: Option<&Marker>| missing(found, marker).join("; ");
    assert!(told(&[file(1)], None).contains("traffic.json"));
    assert!(told(&[file(1)], Some(&marker)).contains("lies in /spool on"));
    marker.whole = Some(Whole { files: 3, bytes: 30 });
    assert_eq!(told(&[file(1), file(2), file(3)], Some(&marker)), "");
    assert_eq!(
        told(&[file(1), file(3)], Some(&marker)),
        "traffic-000002.fbt is not there"
    );
    assert_eq!(
        told(&[file(1), file(2)], Some(&marker)),
        "traffic-000003.fbt is not there"
    );
    marker.whole = Some(Whole { files: 3, bytes: 31 });
    let said = told(&[file(1), file(2), file(3)], Some(&marker));
    assert_eq!(said, "the files have 30 bytes, and should have 31");
    // How many there should be is said by whoever may write to the store.
    marker.whole = Some(Whole {
        files: u32::MAX,
        bytes: 30,
    });
    let said = told(&[file(1), file(2), file(3)], Some(&marker));
    assert!(
        said.ends_with("traffic-000013.fbt is not there; 4294967282 more are not there"),
        "{said}"
    );
}
