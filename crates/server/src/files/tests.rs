//! Tests on a real folder with links, a FIFO and changing files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

/// A temporary folder: `srv/` is the root, with `secret` next to it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("veche-files-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("srv/sub")).unwrap();
        fs::write(folder.join("secret"), "secret").unwrap();
        fs::write(folder.join("srv/a.txt"), "aaa").unwrap();
        fs::write(folder.join("srv/sub/b.txt"), "bbb").unwrap();
        Self(folder)
    }

    fn root(&self) -> PathBuf {
        self.0.join("srv")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(opened: Result<OpenResult, OpenError>) -> Result<String, String> {
    match opened {
        Ok(OpenResult::Folder) => Ok("folder".to_owned()),
        Ok(OpenResult::File(file)) => {
            let mut bytes = Vec::new();
            match file.content {
                FileContent::InMemory(whole) => bytes.extend_from_slice(&whole),
                FileContent::OnDisk(stored) => {
                    while stored
                        .read_at(bytes.len() as u64, 10_000, &mut bytes)
                        .unwrap()
                        > 0
                    {}
                }
            }
            assert_eq!(bytes.len() as u64, file.metadata.len_bytes);
            Ok(String::from_utf8(bytes).unwrap())
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn nothing_outside_of_the_root() {
    let folder = Folder::new("outside");
    let root = folder.root();
    symlink("a.txt", root.join("inside")).unwrap();
    symlink("../a.txt", root.join("sub/up-inside")).unwrap();
    symlink("../secret", root.join("outside")).unwrap();
    symlink(folder.0.join("secret"), root.join("absolute")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("/proc/self/root/etc/passwd", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    // Each row has a name, the result of opening it with `openat2`, and the result of opening it component by
    // component.
    let rows = [
        ("", Ok("folder"), Ok("folder")),
        ("a.txt", Ok("aaa"), Ok("aaa")),
        ("sub", Ok("folder"), Ok("folder")),
        ("sub/b.txt", Ok("bbb"), Ok("bbb")),
        ("inside", Ok("aaa"), Err("not found")),
        ("sub/up-inside", Ok("aaa"), Err("not found")),
        ("outside", Err("not found"), Err("not found")),
        ("absolute", Err("not found"), Err("not found")),
        ("parent", Err("not found"), Err("not found")),
        ("parent/secret", Err("not found"), Err("not found")),
        ("magic", Err("not found"), Err("not found")),
        ("loop", Err("not found"), Err("not found")),
        ("fifo", Err("not found"), Err("not found")),
        ("none", Err("not found"), Err("not found")),
        ("a.txt/index.html", Err("not found"), Err("not found")),
        // The static handler never requests paths like these.
        ("../secret", Err("not found"), Err("not found")),
        ("sub/../../secret", Err("not found"), Err("not found")),
        ("/etc/passwd", Err("not found"), Err("not found")),
    ];
    for (relative, by_openat2, by_walking) in rows {
        let mut files = DiskFiles::default();
        let found = text(files.open(&root, relative, 0));
        if !files.is_openat2_refused {
            assert_eq!(
                found.as_ref().map_err(|e| &**e).map(|t| &**t),
                by_openat2,
                "{relative}"
            );
        }
        let mut files = DiskFiles {
            is_openat2_refused: true,
            ..DiskFiles::default()
        };
        let found = text(files.open(&root, relative, 0));
        assert_eq!(
            found.as_ref().map_err(|e| &**e).map(|t| &**t),
            by_walking,
            "{relative}, walked"
        );
    }
    assert_eq!(
        text(DiskFiles::default().open(&root.join("none"), "a.txt", 0)),
        Err("not found".to_owned())
    );
}

#[test]
fn a_kept_file_is_looked_at_again_after_a_second() {
    let folder = Folder::new("kept");
    let root = folder.root();
    let mut files = DiskFiles::default();
    assert_eq!(text(files.open(&root, "a.txt", 5000)).unwrap(), "aaa");
    fs::write(root.join("a.txt"), "changed").unwrap();
    assert_eq!(text(files.open(&root, "a.txt", 5999)).unwrap(), "aaa");
    assert_eq!(text(files.open(&root, "a.txt", 6000)).unwrap(), "changed");
    fs::remove_file(root.join("a.txt")).unwrap();
    assert_eq!(text(files.open(&root, "a.txt", 6999)).unwrap(), "changed");
    assert_eq!(
        text(files.open(&root, "a.txt", 7000)),
        Err("not found".to_owned())
    );
}

#[test]
fn the_cache_is_bounded() {
    let folder = Folder::new("bounded");
    let root = folder.root();
    let mut files = DiskFiles::default();
    let content = "x".repeat(SMALL_FILE_BYTES_MAX as usize);
    for index in 0..140 {
        let name = format!("{index}.txt");
        fs::write(root.join(&name), &content).unwrap();
        assert_eq!(text(files.open(&root, &name, 0)).unwrap(), content);
    }
    assert_eq!(files.cache.usage(), (8 << 20, 128));
    fs::write(root.join("large.txt"), format!("{content}x")).unwrap();
    assert_eq!(
        text(files.open(&root, "large.txt", 0)).unwrap().len(),
        content.len() + 1
    );
    assert_eq!(files.cache.usage().1, 128);
}

#[test]
fn the_demo_is_built_in() {
    let mut files = DiskFiles::default();
    let root = Path::new("builtin:demo");
    let page = text(files.open(root, "index.html", 0)).unwrap();
    assert!(page.to_ascii_lowercase().contains("<!doctype html>"));
    assert_eq!(text(files.open(root, "", 0)).unwrap(), "folder");
    assert_eq!(
        text(files.open(root, "none", 0)),
        Err("not found".to_owned())
    );
    assert_eq!(
        text(files.open(root, "../demo/index.html", 0)),
        Err("not found".to_owned())
    );
    assert!(text(files.open(Path::new("builtin:dev"), "dev.js", 0)).is_ok());
    let admin = Path::new("builtin:admin");
    assert!(text(files.open(admin, "app.js", 0)).is_ok());
    for name in ["vendor/none", "vendor/../app.js", "vendor"] {
        let expected = Err("not found".to_owned());
        assert_eq!(text(files.open(admin, name, 0)), expected, "{name}");
        assert_eq!(text(files.open(root, name, 0)), expected, "{name}");
    }
    assert_eq!(
        text(files.open(Path::new("builtin:none"), "index.html", 0)),
        Err("not found".to_owned())
    );
}

/// Returns the content of the gzip variant of a file, and the metadata of this variant.
fn variant(
    files: &mut DiskFiles,
    root: &Path,
    relative: &str,
    now_ms: u64,
) -> Option<(String, Arc<FileMetadata>)> {
    let found = files.open_variant(root, relative, ContentCoding::Gzip, now_ms);
    let file = found.expect("nothing is denied")?;
    let description = Arc::clone(&file.metadata);
    Some((text(Ok(OpenResult::File(file))).unwrap(), description))
}

#[test]
fn variants_lie_beside_their_files() {
    let folder = Folder::new("variants");
    let root = folder.root();
    fs::write(root.join("a.txt.gz"), "zipped").unwrap();
    fs::write(root.join("sub/b.txt.gz"), "x".repeat(70_000)).unwrap();
    fs::create_dir(root.join("c.txt.gz")).unwrap();
    fs::write(folder.0.join("secret.gz"), "secret").unwrap();
    symlink("../secret.gz", root.join("d.txt.gz")).unwrap();
    let mut files = DiskFiles::default();
    let (content, description) = variant(&mut files, &root, "a.txt", 0).unwrap();
    assert_eq!(content, "zipped");
    assert_eq!(description.encoding, Some(ContentCoding::Gzip));
    assert_eq!(&*description.content_type, "text/plain; charset=utf-8");
    assert!(
        description.etag.ends_with("-gzip\""),
        "{}",
        description.etag
    );
    let (large, _) = variant(&mut files, &root, "sub/b.txt", 0).unwrap();
    assert_eq!(large.len(), 70_000);
    for none in ["c.txt", "d.txt", "none", "../secret"] {
        assert!(variant(&mut files, &root, none, 0).is_none(), "{none}");
    }
    // A request for the compressed file itself returns that file with its own content type, and without an encoding.
    let Ok(OpenResult::File(direct)) = files.open(&root, "a.txt.gz", 0) else {
        panic!("a file")
    };
    assert_eq!(direct.metadata.encoding, None);
    assert_eq!(&*direct.metadata.content_type, "application/gzip");
    let found = files.open_variant(&root, "a.txt", ContentCoding::Brotli, 0);
    assert!(found.unwrap().is_none());

    let mut dev = DiskFiles::new(true);
    assert!(variant(&mut dev, &root, "a.txt", 0).is_none());
    assert!(variant(&mut files, Path::new("builtin:demo"), "index.html", 0).is_none());
}

#[test]
fn whether_there_is_a_variant_is_looked_at_once_a_second() {
    let folder = Folder::new("variants-kept");
    let root = folder.root();
    let mut files = DiskFiles::default();
    let mut at = |now_ms| variant(&mut files, &root, "a.txt", now_ms).map(|(content, _)| content);
    assert_eq!(at(5000), None);
    fs::write(root.join("a.txt.gz"), "zipped").unwrap();
    assert_eq!(at(5999), None);
    assert_eq!(at(6000).as_deref(), Some("zipped"));
    fs::write(root.join("a.txt.gz"), "again").unwrap();
    assert_eq!(at(6999).as_deref(), Some("zipped"));
    assert_eq!(at(7000).as_deref(), Some("again"));
    fs::remove_file(root.join("a.txt.gz")).unwrap();
    assert_eq!(at(7999).as_deref(), Some("again"));
    assert_eq!(at(8000), None);
}

#[test]
fn variants_that_are_not_there_are_kept_within_bounds() {
    let folder = Folder::new("variants-bounded");
    let root = folder.root();
    let mut files = DiskFiles::default();
    for index in 0..5000 {
        assert!(variant(&mut files, &root, &format!("{index}.txt"), 0).is_none());
    }
    assert_eq!(files.cache.usage(), (0, 4096));
    // The cache is full, so this entry evicts the oldest one.
    fs::write(root.join("0.txt.gz"), "zipped").unwrap();
    assert!(variant(&mut files, &root, "0.txt", 0).is_some());
    assert!(variant(&mut files, &root, "4999.txt", 0).is_none());
    assert_eq!(files.cache.usage(), (6, 4096));
}
