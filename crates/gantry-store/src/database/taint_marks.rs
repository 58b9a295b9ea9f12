//! Taint marks on paths and object keys that may hold untrusted content. A mark on a directory covers everything below it.

use sqlx::SqliteConnection;

use crate::database::{Database, DatabaseError, query_error};

/// The longest place that can have a mark. Paths have at most 4,096 bytes.
const MAX_PLACE_BYTES: usize = 8 * 1024;

/// Beyond this many marks in a directory, the directory itself is marked instead.
const MAX_MARKS: i64 = 10_000;

/// The taint marks of a database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TaintMarks {
    database: Database,
}

impl TaintMarks {
    pub fn new(database: Database) -> TaintMarks {
        TaintMarks { database }
    }

    /// Marks a path. The mark is on disk when this returns.
    pub async fn add(&self, place: &str, source: &str, now: i64) -> Result<(), DatabaseError> {
        self.add_all(&[place], source, now).await.map(|_| ())
    }

    /// Marks paths in one transaction. The marks are on disk when this returns. Returns the paths that had no mark.
    pub async fn add_all(
        &self,
        places: &[&str],
        source: &str,
        now: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        const DOING: &str = "mark places";
        let mut new = Vec::new();
        for place in places {
            if self.covering(place).await?.is_none() {
                new.push(*place);
            }
        }
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let mut transaction = self.database.write(DOING).await?;
        for place in &new {
            insert(&mut transaction, place, source, now).await.map_err(query_error(DOING))?;
        }
        transaction.commit().await.map_err(query_error(DOING))?;
        Ok(new.into_iter().map(str::to_owned).collect())
    }

    /// Takes back marks of [`TaintMarks::add_all`], because nothing was written there.
    pub async fn take_back(&self, places: &[String]) -> Result<(), DatabaseError> {
        if places.is_empty() {
            return Ok(());
        }
        let places = serde_json::json!(places).to_string();
        sqlx::query("DELETE FROM marks WHERE place IN (SELECT value FROM json_each($1))")
            .bind(places)
            .execute(&self.database.writer)
            .await
            .map_err(query_error("take marks away"))?;
        Ok(())
    }

    /// Returns the source of the mark on a path or on a directory above it.
    pub async fn covering(&self, place: &str) -> Result<Option<String>, DatabaseError> {
        // No file has so long a path, and the list of all directories above it would be large.
        if place.len() > MAX_PLACE_BYTES {
            return Ok(None);
        }
        let (mut places, mut next) = (vec![place], parent(place));
        while let Some(above) = next {
            places.push(above);
            next = parent(above);
        }
        let places = serde_json::json!(places).to_string();
        sqlx::query_scalar(
            "SELECT source FROM marks WHERE place IN (SELECT value FROM json_each($1)) LIMIT 1",
        )
        .bind(places)
        .fetch_optional(&self.database.readers)
        .await
        .map_err(query_error("look for marks"))
    }

    /// Like [`TaintMarks::covering`], or the first mark below the path.
    pub async fn touching(&self, place: &str) -> Result<Option<String>, DatabaseError> {
        if let Some(source) = self.covering(place).await? {
            return Ok(Some(source));
        }
        let (from, to) = beneath(place);
        sqlx::query_scalar("SELECT source FROM marks WHERE place >= $1 AND place < $2 LIMIT 1")
            .bind(from)
            .bind(to)
            .fetch_optional(&self.database.readers)
            .await
            .map_err(query_error("look for marks"))
    }

    /// Returns the source of a mark on a path of this machine that is outside all these directories.
    pub async fn outside(&self, directories: &[&str]) -> Result<Option<String>, DatabaseError> {
        let directories = serde_json::json!(directories).to_string();
        sqlx::query_scalar(
            "SELECT source FROM marks WHERE place >= '/' AND place < '0' AND NOT EXISTS (
                SELECT 1 FROM json_each($1) AS d
                WHERE place = d.value OR (place >= d.value || '/' AND place < d.value || '0')
            ) LIMIT 1",
        )
        .bind(directories)
        .fetch_optional(&self.database.readers)
        .await
        .map_err(query_error("look for marks"))
    }

    /// Removes the marks at and below a path. Returns how many.
    pub async fn remove(&self, place: &str) -> Result<u64, DatabaseError> {
        let (from, to) = beneath(place);
        let gone = sqlx::query("DELETE FROM marks WHERE place = $1 OR (place >= $2 AND place < $3)")
            .bind(place)
            .bind(from)
            .bind(to)
            .execute(&self.database.writer)
            .await
            .map_err(query_error("take marks away"))?;
        Ok(gone.rows_affected())
    }
}

/// Inserts one mark. If there are too many, marks become one mark on their directory.
async fn insert(
    transaction: &mut SqliteConnection,
    place: &str,
    source: &str,
    now: i64,
) -> Result<(), sqlx::Error> {
    let count = "SELECT COUNT(*) FROM marks";
    let mut count: i64 = sqlx::query_scalar(count).fetch_one(&mut *transaction).await?;
    let mut place = place;
    while count >= MAX_MARKS
        && let Some(parent) = parent(place)
    {
        let (from, to) = beneath(parent);
        let gone = sqlx::query("DELETE FROM marks WHERE place >= $1 AND place < $2")
            .bind(from)
            .bind(to)
            .execute(&mut *transaction)
            .await?;
        count -= i64::try_from(gone.rows_affected()).unwrap_or(0);
        place = parent;
    }
    sqlx::query("INSERT INTO marks (place, source, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING")
        .bind(place)
        .bind(source)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    Ok(())
}

/// Returns `/a` for `/a/b`, and `/` for `/a`.
fn parent(place: &str) -> Option<&str> {
    let at = place.rfind('/')?;
    let above = &place[..at.max(1)];
    (above.len() < place.len()).then_some(above)
}

/// Returns the bounds of all keys that begin with the path and a slash.
fn beneath(place: &str) -> (String, String) {
    let folder = place.trim_end_matches('/');
    // `0` is the character after `/`.
    (format!("{folder}/"), format!("{folder}0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::testing::database;

    #[tokio::test]
    async fn mark_covers_paths_below_and_is_found_from_above() {
        let (_folder, database) = database().await;
        let marks = TaintMarks::new(database);
        marks.add("/srv/a/file.txt", "a page", 1).await.unwrap();
        marks.add("/other", "a mail", 1).await.unwrap();
        let covering = async |place| marks.covering(place).await.unwrap();
        let touching = async |place| marks.touching(place).await.unwrap();
        assert_eq!(covering("/srv/a/file.txt").await.as_deref(), Some("a page"));
        assert_eq!(covering("/other/deep/down").await.as_deref(), Some("a mail"));
        for free in ["/srv/a", "/srv/a/file.txt2", "/srv/b", "/othe", "/", "gsv:agents/x"] {
            assert_eq!(covering(free).await, None, "{free}");
        }
        for (place, found) in [("/srv", true), ("/", true), ("/srv/a/file.txt", true), ("/srv/ab", false)] {
            assert_eq!(touching(place).await.is_some(), found, "{place}");
        }
        assert_eq!(marks.remove("/srv").await.unwrap(), 1);
        assert_eq!((touching("/srv").await, covering("/other").await.is_some()), (None, true));
        let outside = async |directories: &[&str]| marks.outside(directories).await.unwrap();
        assert_eq!(outside(&["/other"]).await, None);
        assert_eq!(outside(&["/othe"]).await.as_deref(), Some("a mail"));
        assert_eq!(outside(&[]).await.as_deref(), Some("a mail"));
        marks.add_all(&["gsv:agents/x", "node:far", "/other/below"], "a page", 1).await.unwrap();
        assert_eq!(outside(&["/srv", "/other"]).await, None);
        assert_eq!(covering("node:far").await.as_deref(), Some("a page"));
        let new = marks.add_all(&["/new", "/other/below"], "a page", 1).await.unwrap();
        assert_eq!(new, ["/new"]);
        marks.take_back(&new).await.unwrap();
        assert_eq!((covering("/new").await, covering("/other").await.is_some()), (None, true));
        marks.add("/", "all", 1).await.unwrap();
        assert_eq!(covering("/anything").await.as_deref(), Some("all"));
    }

    #[tokio::test]
    async fn many_marks_become_one_mark_on_their_directory() {
        let (_folder, database) = database().await;
        let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
            INSERT INTO marks SELECT '/many/' || i, 'a page', 1 FROM n";
        sqlx::raw_sql(fill).execute(&database.writer).await.unwrap();
        let marks = TaintMarks::new(database.clone());
        marks.add("/many/more", "a page", 2).await.unwrap();
        let count: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM marks").fetch_one(&database.readers).await.unwrap();
        assert_eq!((count, marks.covering("/many/77").await.unwrap().is_some()), (1, true));
    }
}
