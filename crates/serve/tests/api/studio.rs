//! The page, and what it asks for.

use std::fs;

use serde_json::json;

use crate::house::{House, Plot};

#[test]
fn the_page_is_part_of_the_binary() {
    let house = House::open(Plot::default());
    let page = house.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'self'"));
    let text = String::from_utf8(page.body).unwrap();
    assert!(
        !text.contains("http://") && !text.contains("https://"),
        "the page loads something from elsewhere"
    );
    for file in ["studio.css", "studio.js"] {
        assert!(text.contains(file), "{file}");
        assert_eq!(house.get(&format!("/studio/{file}")).status, 200, "{file}");
    }
}

#[test]
fn a_form_is_told_what_a_model_takes() {
    let house =
        House::open(Plot { models: vec!["wan-tiny-i2v", "pixart-tiny"], ..Plot::default() });
    let facts = house.get("/studio/api/models/wan-tiny-i2v").json();
    assert_eq!(facts["makes"], "video");
    assert_eq!(facts["num_frames"], json!({ "default": 81, "first": 1, "step": 4 }));
    assert_eq!(facts["size"]["width_step"], json!(16));
    let image =
        facts["conditions"].as_array().unwrap().iter().find(|own| own["name"] == "image").unwrap();
    assert_eq!((&image["required"], &image["field"]), (&json!(true), &json!("input_reference")));
    assert_eq!(house.get("/studio/api/models").json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(house.get("/studio/api/models/none").status, 404);
    assert_eq!(
        house.get("/studio/api/plan?model=wan-tiny-i2v&ranks=2&width=64&height=64").json()["ranks"],
        json!(2)
    );
    assert_eq!(house.get("/studio/api/plan?ranks=0").status, 400);
}

#[test]
fn runs_are_shown_as_they_grow() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("style");
    fs::create_dir_all(run.join("validation/00000250")).unwrap();
    fs::create_dir_all(run.join("checkpoints/checkpoint-00000400")).unwrap();
    fs::create_dir(folder.path().join("no-run")).unwrap();
    fs::write(run.join("recipe.yaml"), "loop: {steps: 2}\n").unwrap();
    fs::write(
        run.join("metrics.jsonl"),
        "{\"step\": 1, \"losses\": {\"loss\": 2.0}}\n{\"step\": 2, ",
    )
    .unwrap();
    fs::write(run.join("validation/00000250/000.gif"), b"GIF89a").unwrap();
    fs::write(folder.path().join("secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink(folder.path().join("secret.txt"), run.join("validation/link.txt"))
        .unwrap();
    let house = House::open(Plot { runs: Some(folder.path().to_owned()), ..Plot::default() });
    let runs = house.get("/studio/api/runs").json();
    assert_eq!(runs["data"].as_array().unwrap().len(), 1, "{runs}");
    assert_eq!((&runs["data"][0]["name"], &runs["data"][0]["step"]), (&json!("style"), &json!(1)));
    let own = house.get("/studio/api/runs/style").json();
    assert_eq!(
        (&own["checkpoints"], &own["recipe"]),
        (&json!([400]), &json!("loop: {steps: 2}\n"))
    );
    assert_eq!(own["validation"][0]["files"], json!(["000.gif"]));
    let log = house.get("/studio/api/runs/style/metrics").json();
    assert_eq!((log["lines"].as_array().unwrap().len(), &log["restarted"]), (1, &json!(false)));
    fs::write(
        run.join("metrics.jsonl"),
        "{\"step\": 1, \"losses\": {\"loss\": 2.0}}\n{\"step\": 2, \"losses\": {}}\n",
    )
    .unwrap();
    let next =
        house.get(&format!("/studio/api/runs/style/metrics?offset={}", log["offset"])).json();
    assert_eq!(next["lines"], json!([{ "step": 2, "losses": {} }]));
    fs::write(run.join("metrics.jsonl"), "").unwrap();
    let cut =
        house.get(&format!("/studio/api/runs/style/metrics?offset={}", next["offset"])).json();
    assert_eq!((&cut["offset"], &cut["restarted"]), (&json!(0), &json!(true)));
    let file = |path: &str| house.get(&format!("/studio/api/runs/style/files/{path}"));
    assert_eq!(file("validation/00000250/000.gif").body, b"GIF89a");
    for bad in [
        "recipe.yaml",
        "validation/link.txt",
        "validation/..%2f..%2fsecret.txt",
        "validation/../../secret.txt",
        "%2fetc%2fpasswd",
        "checkpoints/checkpoint-00000400",
    ] {
        assert_eq!(file(bad).status, 404, "{bad}");
    }
    assert_eq!(house.get("/studio/api/runs/..%2f/metrics").status, 404);
    assert!(
        House::open(Plot::default()).get("/studio/api/runs").json()["data"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

/// The document names every path of the API, and no other.
#[test]
fn the_document_tells_the_api() {
    let house = House::open(Plot::default());
    let document = house.get("/openapi.json").json();
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for path in [
        "/v1/videos",
        "/v1/videos/{id}",
        "/v1/videos/{id}/content",
        "/v1/images/generations",
        "/v1/models",
        "/metrics",
    ] {
        assert!(paths.iter().any(|known| *known == path), "no {path} in {paths:?}");
    }
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys() {
            let answer =
                house.send(&method.to_uppercase(), &path.replace(['{', '}'], ""), &[], b"");
            assert_ne!(answer.status, 405, "{method} {path}");
        }
    }
    let metrics = String::from_utf8(house.get("/metrics").body).unwrap();
    for name in [
        "moviola_jobs{status=\"queued\"} 0",
        "moviola_denoising_steps_total 0",
        "moviola_peak_memory_bytes",
    ] {
        assert!(metrics.contains(name), "no {name} in {metrics}");
    }
    let models = house.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], "wan-tiny");
    assert_eq!(house.get("/v1/models/wan-tiny").json()["object"], "model");
    assert_eq!(house.get("/v1/models/sora-2").status, 404);
}
