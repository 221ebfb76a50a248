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
    // All that the page names, and all that this names in turn.
    let mut left: Vec<String> = names(&text);
    let mut seen: Vec<String> = Vec::new();
    while let Some(name) = left.pop() {
        if seen.contains(&name) {
            continue;
        }
        let file = house.get(&format!("/studio/{name}"));
        assert_eq!(file.status, 200, "{name}");
        let want = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(file.header("content-type"), Some(want), "{name}");
        left.extend(names(&String::from_utf8(file.body).unwrap()));
        seen.push(name);
    }
    assert!(seen.len() > 15, "{seen:?}");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/studio");
    let there = fs::read_dir(folder).unwrap().count() - 1;
    assert_eq!(seen.len(), there, "the folder holds a file that nothing names: {seen:?}");
    let about = house.get("/studio/api/about").json();
    assert_eq!(about["views"], json!(["generate", "training", "plan"]));
}

/// The files of the page that a text of it names.
fn names(text: &str) -> Vec<String> {
    let after = |mark: &'static str| {
        text.split(mark).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
    };
    after("from \"./").chain(after("=\"/studio/")).collect()
}

/// The page of one run is that and nothing else, and this machine's alone.
#[test]
fn a_run_has_a_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let viewer = serve::Viewer::open(folder.path(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let get = |path: &str| {
        let host = viewer.address().to_string();
        let bytes = crate::wire::request("GET", path, &[("Host", &host)], b"");
        crate::wire::exchange(viewer.address(), &bytes)
    };
    assert_eq!(get("/").status, 200);
    assert_eq!(get("/studio/training.js").status, 200);
    assert_eq!(get("/studio/api/about").json()["views"], json!(["training"]));
    // Its folder is empty until the first step.
    assert_eq!(get("/studio/api/runs").json()["data"], json!([]));
    fs::write(folder.path().join("metrics.jsonl"), "{\"step\": 3, \"losses\": {}}\n").unwrap();
    assert_eq!(get("/studio/api/runs").json()["data"][0]["step"], json!(3));
    // A run has a recipe before its first step, and a page that looks at it then is not told of an error.
    fs::remove_file(folder.path().join("metrics.jsonl")).unwrap();
    fs::write(folder.path().join("recipe.yaml"), "loop: {steps: 2}\n").unwrap();
    let young = get("/studio/api/runs").json()["data"][0]["name"].as_str().unwrap().to_owned();
    let none = get(&format!("/studio/api/runs/{young}/metrics"));
    assert_eq!((none.status, &none.json()["lines"]), (200, &json!([])));
    fs::write(folder.path().join("metrics.jsonl"), "{\"step\": 3, \"losses\": {}}\n").unwrap();
    // It is called by the name of its folder, which a browser can ask for.
    let name = get("/studio/api/runs").json()["data"][0]["name"].as_str().unwrap().to_owned();
    assert_eq!(name, folder.path().file_name().unwrap().to_str().unwrap());
    let log = get(&format!("/studio/api/runs/{name}/metrics")).json();
    assert_eq!(log["lines"][0]["step"], json!(3));
    assert_eq!(get("/v1/videos").status, 404);
    let other = crate::wire::request("GET", "/studio/api/runs", &[("Host", "evil.example")], b"");
    assert_eq!(crate::wire::exchange(viewer.address(), &other).status, 403);
    let address = viewer.address();
    drop(viewer);
    assert!(std::net::TcpStream::connect(address).is_err(), "it is still there");
    let open = serve::Viewer::open(folder.path(), "0.0.0.0:0".parse().unwrap());
    assert!(open.err().unwrap().to_string().contains("127.0.0.1"));
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
    // How `generate` opens it is told to whoever has this machine, and to nobody with a key.
    assert_eq!(facts["command"]["arguments"], json!(["--model", "wan-tiny-i2v"]));
    let locked = House::open(Plot { keys: Some("anna:0123456789abcdef"), ..Plot::default() });
    let key = [("Authorization", "Bearer 0123456789abcdef")];
    let told = locked.send("GET", "/studio/api/models/wan-tiny", &key, b"").json();
    assert_eq!((&told["id"], told.get("command")), (&json!("wan-tiny"), None));
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
        for (method, call) in calls.as_object().unwrap() {
            // Whoever makes calls of it must know what a path is made of, and that any may be refused.
            let parameters = call["parameters"].as_array().unwrap();
            let parts = parameters.iter().filter(|own| own["in"] == "path");
            let named = parts
                .filter(|own| path.contains(&format!("{{{}}}", own["name"].as_str().unwrap())));
            assert_eq!(named.count(), path.matches('{').count(), "{method} {path}: {parameters:?}");
            let refusal =
                &call["responses"]["4XX"]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(refusal, "#/components/schemas/Refused", "{method} {path}");
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
