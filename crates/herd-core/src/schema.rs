//! The JSON schema of the job file, for editors, from the same table that the parser reads.

use serde_json::{Map, Value, json};

use crate::jobfile::keys::{JOB, Key, Shape};

/// The schema, draft 2020-12.
pub fn job_file() -> Value {
    let mut schema = object(JOB);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Herdsman job file");
    schema["anyOf"] = json!([{"required": ["run"]}, {"required": ["setup"]}]);
    schema
}

fn object(keys: &[Key]) -> Value {
    let mut properties = Map::new();
    for key in keys {
        let mut schema = shape(&key.shape);
        schema["description"] = json!(key.doc);
        properties.insert(key.name.to_owned(), schema);
    }
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let required: Vec<_> = keys
        .iter()
        .filter(|key| key.required)
        .map(|key| key.name)
        .collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn shape(shape: &Shape) -> Value {
    match shape {
        // An editor would underline `N: 8` if only strings were allowed.
        Shape::Text => json!({"type": ["string", "number", "boolean"]}),
        Shape::Integer((least, most)) => {
            json!({"type": "integer", "minimum": least, "maximum": most})
        }
        Shape::Choice(words) => json!({"enum": words}),
        Shape::Duration => {
            json!({"type": "string", "examples": ["90m", "1h30m", "180s", "1-02:00:00"]})
        }
        Shape::Size => {
            json!({"type": "string", "examples": ["32GiB", "512M"]})
        }
        Shape::Percent => json!({"type": ["string", "integer"], "examples": ["80%"]}),
        Shape::List(item) => json!({"type": "array", "items": self::shape(item)}),
        Shape::Object(keys) => object(keys),
        Shape::Map(value) => {
            json!({"type": "object", "additionalProperties": self::shape(value)})
        }
        Shape::OneOf(shapes) => {
            json!({"anyOf": shapes.iter().map(self::shape).collect::<Vec<_>>()})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of a table and of the tables beneath it stands in the schema with its text.
    fn assert_has(schema: &Value, keys: &[Key]) {
        for key in keys {
            let property = &schema["properties"][key.name];
            assert_eq!(property["description"], key.doc, "{}", key.name);
            assert!(key.doc.ends_with('.'), "{}", key.name);
            assert_shape(property, &key.shape);
        }
    }

    fn assert_shape(schema: &Value, shape: &Shape) {
        match shape {
            Shape::Object(keys) => assert_has(schema, keys),
            Shape::List(item) => assert_shape(&schema["items"], item),
            Shape::Map(value) => assert_shape(&schema["additionalProperties"], value),
            Shape::OneOf(shapes) => {
                for (index, shape) in shapes.iter().enumerate() {
                    assert_shape(&schema["anyOf"][index], shape);
                }
            }
            Shape::Choice(words) => assert_eq!(schema["enum"], json!(words)),
            Shape::Text | Shape::Integer(_) | Shape::Duration | Shape::Size | Shape::Percent => {
                assert!(!schema["type"].is_null());
            }
        }
    }

    #[test]
    fn has_every_key_of_the_parser() {
        assert_has(&job_file(), JOB);
    }

    /// Every key of the specification as it is serialised can be written in a job file.
    #[test]
    fn has_every_field_of_the_specification() {
        let spec = serde_json::to_value(crate::spec::JobSpec::default()).unwrap();
        let schema = job_file();
        for key in spec.as_object().unwrap().keys() {
            assert!(schema["properties"].get(key).is_some(), "{key}");
        }
        assert_eq!(
            schema["properties"].as_object().unwrap().len(),
            spec.as_object().unwrap().len()
        );
    }
}
