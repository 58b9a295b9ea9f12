// The types of the protocol, for the type checker alone. The gateway does not serve this file.
import type { Methods as Generated, Events as GeneratedEvents } from "../../../docs/protocol.d.ts";
export type * from "../../../docs/protocol.d.ts";

type Any = { params: any; result: any };
export interface Methods extends Generated { [later: `${"markdown" | "page" | "inbox" | "audit" | "usage" | "policy" | "secrets" | "mcp" | "config" | "channels" | "google" | "doctor" | "transfers" | "files" | "graph" | "ansi" | "diff"}.${string}`]: Any; "nodes.listen": Any }
export interface Events extends GeneratedEvents { "inbox.changed": any; "nodes.changed": any; "transfers.changed": any }
