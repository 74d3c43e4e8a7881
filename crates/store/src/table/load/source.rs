//! The sources of rows: a file, the files of a folder, or those of an archive.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

use super::LoadFormat;
use crate::table::job::{Job, JobError};

/// Size of a read from an archive or a compressed file in bytes.
const BLOCK: usize = 64 << 10;

/// The files to load, in the order of their names.
#[derive(Debug)]
pub(super) enum LoadSource {
    Files(Vec<PathBuf>),
    /// The path of an archive, and the indices and names of its members to load.
    Archive(PathBuf, Vec<(usize, String)>),
}

/// An archive as opened by one thread.
pub(super) type OpenedArchive = ZipArchive<BufReader<File>>;

impl LoadSource {
    pub(super) fn find_files(
        path: &Path,
        format: LoadFormat,
        pattern: Option<&str>,
        job: &Job,
    ) -> Result<Self, JobError> {
        let shown = path.display().to_string();
        let about = fs::metadata(path).map_err(|error| JobError::file(&shown, error))?;
        let is_archive = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("zip"));
        let source = if about.is_dir() {
            Self::folder(path, format, pattern, job)?
        } else if is_archive {
            Self::archive(path, format, pattern, job)?
        } else {
            job.add_total(about.len());
            return Ok(Self::Files(vec![path.to_owned()]));
        };
        if source.len() == 0 {
            let why = match pattern {
                Some(pattern) => format!("the folder or archive has no file \"{pattern}\""),
                None => format!(
                    "the folder or archive has no file with the extension {}",
                    format.endings()[0]
                ),
            };
            return Err(JobError::file(&shown, why));
        }
        Ok(source)
    }

    fn folder(
        path: &Path,
        format: LoadFormat,
        pattern: Option<&str>,
        job: &Job,
    ) -> Result<Self, JobError> {
        let fault = |error: io::Error| JobError::file(&path.display().to_string(), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !is_selected(&name, format, pattern) {
                continue;
            }
            // `metadata` follows symbolic links.
            let about = fs::metadata(entry.path()).map_err(fault)?;
            if about.is_file() {
                job.add_total(about.len());
                found.push((name, entry.path()));
            }
        }
        found.sort_by(|(one, _), (other, _)| by_number(one, other));
        Ok(Self::Files(
            found.into_iter().map(|(_, path)| path).collect(),
        ))
    }

    fn archive(
        path: &Path,
        format: LoadFormat,
        pattern: Option<&str>,
        job: &Job,
    ) -> Result<Self, JobError> {
        let shown = path.display().to_string();
        let mut archive = open_archive(path)?;
        let mut found = Vec::new();
        for place in 0..archive.len() {
            let member = archive
                .by_index_raw(place)
                .map_err(|error| JobError::file(&shown, error))?;
            let name = member
                .name()
                .map_err(|error| JobError::file(&shown, error))?
                .into_owned();
            let last = name.rsplit('/').next().unwrap_or_default();
            let is_meant = is_selected(last, format, pattern)
                || pattern.is_some_and(|pattern| is_match(pattern.as_bytes(), name.as_bytes()));
            if member.is_file() && is_meant {
                job.add_total(member.size());
                found.push((place, name));
            }
        }
        found.sort_by(|(_, one), (_, other)| by_number(one, other));
        Ok(Self::Archive(path.to_owned(), found))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Files(files) => files.len(),
            Self::Archive(_, members) => members.len(),
        }
    }

    /// Returns the name of a file for error messages.
    pub(super) fn name(&self, place: usize) -> String {
        match self {
            Self::Files(files) => files[place].display().to_string(),
            Self::Archive(path, members) => format!("{}: {}", path.display(), members[place].1),
        }
    }

    /// Opens a file. `archive` is the calling thread's own handle of the archive, which is opened on first use.
    pub(super) fn open<'a>(
        &self,
        place: usize,
        archive: &'a mut Option<OpenedArchive>,
        job: &'a Job,
    ) -> Result<Box<dyn Read + 'a>, JobError> {
        let fault = |error: &dyn std::fmt::Display| JobError::file(&self.name(place), error);
        let (reader, name): (Box<dyn Read + 'a>, String) = match self {
            Self::Files(files) => {
                let file = File::open(&files[place]).map_err(|error| fault(&error))?;
                (Box::new(file), files[place].to_string_lossy().into_owned())
            }
            Self::Archive(path, members) => {
                let archive = match archive {
                    Some(archive) => archive,
                    none => none.insert(open_archive(path)?),
                };
                let (member, name) = &members[place];
                let member = archive.by_index(*member).map_err(|error| fault(&error))?;
                (Box::new(member), name.clone())
            }
        };
        let counted = CountingReader { reader, job };
        let is_packed = name.to_ascii_lowercase().ends_with(".gz");
        Ok(match is_packed {
            true => Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                BLOCK, counted,
            ))),
            false => Box::new(counted),
        })
    }
}

fn open_archive(path: &Path) -> Result<OpenedArchive, JobError> {
    let shown = path.display().to_string();
    let file = File::open(path).map_err(|error| JobError::file(&shown, error))?;
    ZipArchive::new(BufReader::with_capacity(BLOCK, file))
        .map_err(|error| JobError::file(&shown, error))
}

/// A reader that counts the bytes read for the job's progress, and fails when the job is cancelled.
struct CountingReader<'a> {
    reader: Box<dyn Read + 'a>,
    job: &'a Job,
}

impl Read for CountingReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.job.check().map_err(io::Error::other)?;
        let count = self.reader.read(into)?;
        self.job.add_bytes(count as u64);
        Ok(count)
    }
}

fn is_selected(name: &str, format: LoadFormat, pattern: Option<&str>) -> bool {
    match pattern {
        Some(pattern) => is_match(pattern.as_bytes(), name.as_bytes()),
        None => {
            let name = name.to_ascii_lowercase();
            let name = name.strip_suffix(".gz").unwrap_or(&name);
            format.endings().iter().any(|ending| name.ends_with(ending))
        }
    }
}

/// Returns whether a name matches a pattern with `*` and `?`.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The position of the last `*` in the pattern, and the end of the text that it is assumed to match.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            // `?` matches a whole UTF-8 character.
            Some(b'?') => {
                at += 1;
                place += 1;
                while name.get(place).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    place += 1;
                }
            }
            Some(byte) if *byte == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((of_star, taken)) => {
                    star = Some((of_star, taken + 1));
                    (at, place) = (of_star + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Compares names in natural order, in which `file2` comes before `file10`.
fn by_number(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one.as_bytes(), other.as_bytes());
    while let ([first, ..], [second, ..]) = (left, right) {
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let of_left = digits(&mut left);
            let of_right = digits(&mut right);
            let order = (of_left.len(), of_left).cmp(&(of_right.len(), of_right));
            if order.is_ne() {
                return order;
            }
        } else if first == second {
            (left, right) = (&left[1..], &right[1..]);
        } else {
            return first.cmp(second);
        }
    }
    // Names that differ only in leading zeros are compared as texts, so that the order is total.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Removes the digits at the beginning of a text and returns them without leading zeros.
fn digits<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        for (pattern, name, expected) in [
            ("visits_*.json", "visits_12.json", true),
            ("visits_*.json", "visits_.json", true),
            ("visits_*.json", "visits_1.json.gz", false),
            ("visits_?.json", "visits_1.json", true),
            ("visits_?.json", "visits_12.json", false),
            ("?.csv", "я.csv", true),
            ("*", "", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "xxaxxbxx", false),
            ("", "a", false),
        ] {
            let found = is_match(pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn numbers_in_names_are_numbers() {
        let mut names = ["v_10", "v_2", "v_2a", "v_1", "v_02", "v", "u_9", "v_100"];
        names.sort_by(|one, other| by_number(one, other));
        assert_eq!(
            names,
            ["u_9", "v", "v_1", "v_02", "v_2", "v_2a", "v_10", "v_100"]
        );
    }
}
