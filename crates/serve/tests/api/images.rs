//! `/v1/images`.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::house::{House, Plot, png};
use crate::wire::Part;

fn picture() -> Value {
    json!({ "prompt": "a fox", "size": "32x32", "num_inference_steps": 4, "seed": 3 })
}

fn decoded(text: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(text.as_str().unwrap()).unwrap()
}

#[test]
fn pictures_come_as_base64_or_by_address() {
    let house = House::open(Plot { models: vec!["pixart-tiny"], ..Plot::default() });
    let mut body = picture();
    body["n"] = json!(2);
    body["quality"] = json!("auto");
    let answer = house.post("/v1/images/generations", &body);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let made = answer.json();
    let pictures: Vec<Vec<u8>> =
        made["data"].as_array().unwrap().iter().map(|own| decoded(&own["b64_json"])).collect();
    assert_eq!(
        (pictures.len(), &made["size"], made["created"].is_i64()),
        (2, &json!("32x32"), true)
    );
    assert!(
        pictures.iter().all(|bytes| bytes.starts_with(b"\x89PNG")) && pictures[0] != pictures[1]
    );
    body["response_format"] = json!("url");
    let made = house.post("/v1/images/generations", &body).json();
    let url = made["data"][1]["url"].as_str().unwrap();
    let path = url.strip_prefix("http://127.0.0.1").unwrap();
    assert_eq!(house.get(path).body, pictures[1]);
    // Behind a proxy that ends TLS it is there.
    let headers = [("Content-Type", "application/json"), ("X-Forwarded-Proto", "https")];
    let text = body.to_string();
    let made = house.send("POST", "/v1/images/generations", &headers, text.as_bytes()).json();
    assert!(made["data"][0]["url"].as_str().unwrap().starts_with("https://127.0.0.1/v1/"));
    body["response_format"] = json!("b64_json");
    body["output_format"] = json!("jpeg");
    let made = house.post("/v1/images/generations", &body).json();
    assert!(decoded(&made["data"][0]["b64_json"]).starts_with(b"\xff\xd8\xff"));
    for (field, value) in [
        ("n", json!(11)),
        ("quality", json!("hd")),
        ("response_format", json!("gif")),
        ("output_format", json!("svg")),
        ("partial_images", json!(2)),
        ("num_frames", json!(5)),
    ] {
        let mut body = picture();
        body[field] = value;
        let refused = house.post("/v1/images/generations", &body);
        assert_eq!((refused.status, &refused.error()["param"]), (400, &json!(field)));
    }
    // Pictures are no clips.
    assert!(house.get("/v1/videos").json()["data"].as_array().unwrap().is_empty());
    let clip = house.post("/v1/videos", &picture());
    assert_eq!((clip.status, &clip.error()["param"]), (400, &json!("model")));
}

#[test]
fn a_picture_is_seen_on_its_way() {
    let house = House::open(Plot { models: vec!["pixart-tiny"], ..Plot::default() });
    let whole = house.post("/v1/images/generations", &picture()).json();
    let mut body = picture();
    body["stream"] = json!(true);
    body["partial_images"] = json!(2);
    let text = String::from_utf8(house.post("/v1/images/generations", &body).body).unwrap();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "image_generation.partial_image",
            "image_generation.partial_image",
            "image_generation.completed"
        ]
    );
    for (at, event) in events[..2].iter().enumerate() {
        assert_eq!(event["partial_image_index"], json!(at));
        assert!(decoded(&event["b64_json"]).starts_with(b"\x89PNG"));
    }
    assert_ne!(events[0]["b64_json"], events[1]["b64_json"]);
    // Looking on changes nothing.
    assert_eq!(events[2]["b64_json"], whole["data"][0]["b64_json"]);
    assert!(events[2]["usage"]["total_tokens"].is_number());
}

#[test]
fn a_model_that_takes_no_picture_says_so() {
    let house = House::open(Plot { models: vec!["pixart-tiny"], ..Plot::default() });
    let image = png(32, 32);
    let answer = house.post_form(
        "/v1/images/edits",
        &[Part::Text("prompt", "a fox"), Part::Text("size", "32x32"), Part::File("image", &image)],
    );
    assert_eq!(answer.status, 400);
    assert!(
        answer.error()["message"].as_str().unwrap().contains("takes prompts alone"),
        "{:?}",
        answer.error()
    );
}
