// Starts emulate's Slack server: emulate.mjs MODULE PORT. Prints its address.
const { createEmulator } = await import(process.argv[2])
const scopes = ['chat:write', 'files:write', 'files:read', 'users:read', 'channels:history', 'channels:read']
const seed = {
  slack: {
    team: { name: 'Example', domain: 'example' },
    strict_scopes: true,
    tokens: [
      { token: 'xoxb-0000-SECRETBOT', scopes },
      { token: 'xoxb-0000-READONLY', scopes: ['channels:history'] },
    ],
  },
}
const slack = await createEmulator({ service: 'slack', port: Number(process.argv[3]), seed })
console.log(slack.url)
