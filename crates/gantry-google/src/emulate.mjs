// Starts emulate's server of Google's APIs: emulate.mjs MODULE PORT. Prints its address.
const { createEmulator } = await import(process.argv[2])
const user = 'ann@example.com'
const seed = {
  tokens: { 'emulate-token': { login: user, scopes: ['gmail.modify', 'calendar', 'drive'] } },
  google: {
    users: [{ email: user, name: 'Ann', email_verified: true }],
    labels: [],
    messages: [{
      id: 'msgwelcome', user_email: user, from: 'Jo <jo@c.example>', to: user, subject: 'Plan for Friday',
      body_text: 'The meeting is at nine.', label_ids: ['INBOX', 'UNREAD'], date: '2026-11-18T10:00:00.000Z',
    }],
    calendars: [{ id: 'primary', user_email: user, summary: user, primary: true, selected: true, time_zone: 'UTC' }],
    calendar_events: [],
    drive_items: [
      { id: 'drvfolder', user_email: user, name: 'Reports', mime_type: 'application/vnd.google-apps.folder', parent_ids: ['root'] },
    ],
  },
}
const google = await createEmulator({ service: 'google', port: Number(process.argv[3]), seed })
console.log(google.url)
