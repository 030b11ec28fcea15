//! Objects as the API server gives them, and as nobody should: every table by kind, and garbage at every place.

mod attachments;
mod nodes;
mod pods;
mod volumes;

use serde_json::{Value, json};

use super::*;

fn read<K: Readable>(value: &Value) -> K {
    serde_json::from_str::<Field<K>>(&value.to_string()).expect("any JSON is read").ok().expect("an object")
}

/// `value` with the member at `pointer` set to `to`, all objects on the way made.
fn with(mut value: Value, pointer: &str, to: Value) -> Value {
    let mut place = &mut value;
    for step in pointer.split('/').skip(1) {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step.replace("~1", "/")],
        };
    }
    *place = to;
    value
}

fn wall(text: &str) -> Wall {
    Wall::read_str(text).expect("a time")
}

/// Whatever stands anywhere in an object, reading it does not fail.
#[test]
fn no_value_at_any_place_fails_an_object() {
    fn pointers(value: &Value, here: &str, all: &mut Vec<String>) {
        all.push(here.to_owned());
        match value {
            Value::Object(map) => {
                for (key, member) in map {
                    pointers(member, &format!("{here}/{}", key.replace('/', "~1")), all);
                }
            }
            Value::Array(list) => {
                for (index, element) in list.iter().enumerate() {
                    pointers(element, &format!("{here}/{index}"), all);
                }
            }
            _ => {}
        }
    }
    fn check<K: Watched>(value: &Value) {
        let mut all = Vec::new();
        pointers(value, "", &mut all);
        for pointer in all {
            for garbage in
                [json!(1), json!(-1.5), json!(true), json!("x"), json!([[]]), json!({ "a": [1] }), Value::Null]
            {
                let value = with(value.clone(), &pointer, garbage);
                let field: Result<Field<K>, _> = serde_json::from_str(&value.to_string());
                let field = field.unwrap_or_else(|error| panic!("{pointer}: {error}"));
                // Also what cannot be translated has a key, unless its identity itself is spoilt.
                if let Field::Is(object) = field
                    && object.key().is_none()
                {
                    assert!(pointer.is_empty() || pointer.starts_with("/metadata"), "{pointer}");
                }
            }
        }
    }
    check::<PodObject>(&pods::pod_json());
    check::<ClaimObject>(&volumes::claim_json());
    check::<PersistentVolumeObject>(&volumes::pv_json());
    check::<NodeObject>(&nodes::node_json());
    check::<AttachmentObject>(&attachments::i_08());
}
