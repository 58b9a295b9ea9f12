// The types of the protocol, for the type checker alone. The gateway does not serve this file.
export type * from "../../../docs/protocol.d.ts";
import type { Empty, Methods as Generated } from "../../../docs/protocol.d.ts";

// Methods that the generated types leave out: docs/channels.md and docs/protocol.md describe them.
export interface Methods extends Generated {
  "channels.list": { params: Empty; result: { accounts: ChannelInfo[] } };
  "channels.people": { params: Empty; result: { people: ChannelPerson[] } };
  "channels.role": { params: { account: string; person: string; role: "member" | "blocked" | "none" }; result: { people: ChannelPerson[] } };
  "channels.pair": { params: { code: string; approve: boolean }; result: ChannelPerson };
  "channels.link": { params: { id: string }; result: ChannelLink };
  "channels.test": { params: { id: string }; result: ChannelTest };
  "channels.restart": { params: { id: string }; result: { accounts: ChannelInfo[] } };
  "google.status": { params: Empty; result: GoogleStatus };
  "google.auth.begin": { params: { scopes?: string[] }; result: { url: string; expiresInSeconds: number } };
  "google.auth.finish": { params: { address: string }; result: GoogleAccount };
}

export interface ChannelInfo {
  id: string;
  channel: string;
  account: string;
  agent: string;
  /** `connecting`, `connected`, `needs_login`, `conflict` or `refused`. */
  state: string;
  bot?: string;
  error?: string;
  lastEvent?: number;
  backlog: number;
  linked: boolean;
}

export interface ChannelPerson {
  account: string;
  id: string;
  name: string;
  /** `owner`, `member`, `pending` or `blocked`. */
  role: string;
  code?: string;
  since: number;
}

export interface ChannelLink {
  id: string;
  code: string;
  bot?: string;
  expires: number;
}

export interface ChannelTest {
  id: string;
  ok: boolean;
  bot?: string;
  problem?: string;
  fix?: string;
  warnings?: string[];
}

export interface GoogleAccount {
  email: string;
  /** `browser`, `device` or `service`. */
  kind: string;
  isDefault: boolean;
  scopes: string[];
  ended?: string;
}

export interface GoogleStatus {
  configured: boolean;
  accounts: GoogleAccount[];
}
