PRAGMA user_version = 11;
