PRAGMA user_version = 12;
