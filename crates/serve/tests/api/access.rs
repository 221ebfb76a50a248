//! Keys, clients and pages of other origins.

use serde_json::json;

use crate::house::{House, Plot, small};

const KEYS: &str = "anna:0123456789abcdef\nbert:fedcba9876543210\n";
const ANNA: (&str, &str) = ("Authorization", "Bearer 0123456789abcdef");
const BERT: (&str, &str) = ("Authorization", "Bearer fedcba9876543210");
const JSON: (&str, &str) = ("Content-Type", "application/json");

#[test]
fn clients_have_keys_and_see_their_own_jobs() {
    let house = House::open(Plot { keys: Some(KEYS), ..Plot::default() });
    for headers in
        [&[][..], &[("Authorization", "Bearer wrong")], &[("Authorization", "0123456789abcdef")]]
    {
        for path in ["/v1/videos", "/v1/models", "/metrics", "/studio/api/models"] {
            let answer = house.send("GET", path, headers, b"");
            assert_eq!(
                (answer.status, &answer.error()["code"]),
                (401, &json!("invalid_api_key")),
                "{path}"
            );
        }
    }
    // What says nothing of anybody is open; with keys the server has any name.
    for path in ["/health", "/ready", "/", "/openapi.json"] {
        assert_eq!(
            house.send("GET", path, &[("Host", "films.example")], b"").status,
            200,
            "{path}"
        );
    }
    let body = small("a fox").to_string();
    let made = house.send("POST", "/v1/videos", &[ANNA, JSON], body.as_bytes()).json();
    let path = format!("/v1/videos/{}", made["id"].as_str().unwrap());
    assert_eq!(house.send("GET", &path, &[ANNA], b"").status, 200);
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("GET", format!("{path}/content")),
        ("GET", format!("{path}/events")),
    ] {
        assert_eq!(house.send(method, &path, &[BERT], b"").status, 404, "{method} {path}");
    }
    let remix = house.send("POST", &format!("{path}/remix"), &[BERT, JSON], b"{\"prompt\": \"x\"}");
    assert_eq!(remix.status, 404);
    let list =
        |who| house.send("GET", "/v1/videos", &[who], b"").json()["data"].as_array().unwrap().len();
    assert_eq!((list(ANNA), list(BERT)), (1, 0));
}

#[test]
fn pages_of_others_cannot_ask() {
    let house = House::open(Plot {
        origins: vec!["https://welcome.example".to_owned()],
        ..Plot::default()
    });
    let send = |headers: &[(&str, &str)]| house.send("GET", "/v1/videos", headers, b"");
    assert_eq!(send(&[("Origin", "https://evil.example")]).status, 403);
    assert_eq!(send(&[("Origin", "null")]).status, 403);
    assert_eq!(send(&[("Host", "evil.example")]).status, 403);
    assert_eq!(
        send(&[("Host", "127.0.0.1:8000"), ("Origin", "http://127.0.0.1:8000")]).status,
        200
    );
    let welcome = send(&[("Origin", "https://welcome.example")]);
    assert_eq!(welcome.header("access-control-allow-origin"), Some("https://welcome.example"));
    assert_eq!(send(&[]).header("access-control-allow-origin"), None);
}

/// A page of a welcome origin asks first, and may read what tells it when to ask again.
#[test]
fn a_welcome_page_asks_before_it_sends() {
    let house = House::open(Plot {
        origins: vec!["https://welcome.example".to_owned()],
        ..Plot::default()
    });
    let asked = [
        ("Origin", "https://welcome.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type,x-stainless-os,cookie"),
    ];
    let answer = house.send("OPTIONS", "/v1/videos", &asked, b"");
    assert_eq!(answer.status, 204);
    let allowed = answer.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("x-stainless-os") && !allowed.contains("cookie"), "{allowed}");
    assert!(answer.header("access-control-allow-methods").unwrap().contains("DELETE"));
    let sent = house.send("GET", "/v1/videos", &asked[..1], b"");
    let exposed = sent.header("access-control-expose-headers").unwrap();
    assert!(exposed.contains("openai-poll-after-ms") && exposed.contains("retry-after"));
    let evil = [("Origin", "https://evil.example"), asked[1]];
    assert_eq!(house.send("OPTIONS", "/v1/videos", &evil, b"").status, 403);
}

/// Names of schemes and hosts have no case, and a range in another unit is none.
#[test]
fn headers_mean_what_they_say() {
    let house = House::open(Plot::default());
    assert_eq!(house.send("GET", "/v1/models", &[("Host", "LocalHost:8000")], b"").status, 200);
    let id = house.create(&small("a fox"));
    house.wait(&id);
    let content = format!("/v1/videos/{id}/content");
    let all = house.get(&content).body;
    let other = house.send("GET", &content, &[("Range", "frames=0-1")], b"");
    assert_eq!((other.status, other.body == all), (200, true));
    let house = House::open(Plot { keys: Some(KEYS), ..Plot::default() });
    let lower = ("Authorization", "bearer 0123456789abcdef");
    assert_eq!(house.send("GET", "/v1/models", &[lower], b"").status, 200);
}

/// Who has a key is not told where files are.
#[test]
fn places_are_told_to_whoever_has_the_machine() {
    let told = |house: &House, headers: &[(&str, &str)]| {
        let facts = house.send("GET", "/studio/api/models/wan-tiny", headers, b"").json();
        facts.get("command").is_some()
    };
    assert!(told(&House::open(Plot::default()), &[]));
    assert!(!told(&House::open(Plot { keys: Some(KEYS), ..Plot::default() }), &[ANNA]));
}

/// What a call takes stands in the document.
#[test]
fn the_document_has_the_fields_of_each_call() {
    let document = House::open(Plot::default()).get("/openapi.json").json();
    for (path, fields) in [
        ("/v1/videos", &["keyframe[0]", "lora", "audio"][..]),
        ("/v1/videos/extensions", &["seconds", "num_frames", "video", "video[id]", "fps", "seed"]),
        ("/v1/videos/edits", &["mask", "video", "video[id]", "guidance_scale"]),
        ("/v1/images/edits", &["image", "mask", "prompt", "n", "stream"]),
    ] {
        let content = &document["paths"][path]["post"]["requestBody"]["content"];
        let name = content["multipart/form-data"]["schema"]["$ref"].as_str().unwrap();
        // A form may be made of others.
        let mut text = String::new();
        let mut left = vec![name.to_owned()];
        while let Some(name) = left.pop() {
            let schema = document.pointer(name.trim_start_matches('#')).unwrap().to_string();
            let named = schema.split("\"$ref\":\"").skip(1);
            left.extend(named.map(|rest| rest.split('"').next().unwrap().to_owned()));
            text += &schema;
        }
        for field in fields {
            assert!(text.contains(&format!("\"{field}\":")), "{path} has no {field}: {text}");
        }
    }
}
