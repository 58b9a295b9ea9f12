PRAGMA user_version = 10;
