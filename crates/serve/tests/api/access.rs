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
