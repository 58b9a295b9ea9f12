//! python-telegram-bot uses the server as it uses Telegram's.

use gantry_testkit::chat::telegram::{FakeTelegram, TOKEN, private};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn python_telegram_bot_accepts_the_server() {
    let fake = FakeTelegram::start().await;
    fake.push_text("hello");
    let ada = json!({ "id": 42, "is_bot": false, "first_name": "Ada" });
    let asked = private(json!({ "text": "Run?" }));
    let press = json!({ "id": "cb", "from": ada, "message": asked, "chat_instance": "1", "data": "q:1:0" });
    fake.push("callback_query", press);
    let sizes = json!([{ "file_id": "big", "file_unique_id": "u", "width": 9, "height": 9, "file_size": 4 }]);
    fake.push("message", private(json!({ "photo": sizes, "caption": "see", "media_group_id": "1" })));
    fake.add_file("big", "photos/a.jpg", b"JPEG");
    crate::judge::run("telegram", &[&fake.url(), TOKEN]).await;
    assert_eq!(fake.backlog(), 0);
    assert_eq!(fake.calls("answerCallbackQuery")[0]["text"], "Allowed.");
    assert_eq!(fake.calls("sendDocument")[0]["document"]["content"], "data");
}
