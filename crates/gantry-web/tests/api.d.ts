// The types of the protocol, for the type checker alone. The gateway does not serve this file.
import type { Methods as Generated, Events as GeneratedEvents, NodeInfo as GeneratedNode } from "../../../docs/protocol.d.ts";
export type * from "../../../docs/protocol.d.ts";

type Any = { params: any; result: any };
type Later = "markdown" | "page" | "inbox" | "audit" | "usage" | "policy" | "secrets" | "mcp" | "config" | "transfers" | "uploads" | "downloads" | "graph" | "ansi" | "diff";
export interface Methods extends Generated { [later: `${Later}.${string}`]: Any; "nodes.listen": Any; "gateway.doctor": Any; "sessions.search": Any; "sessions.rename": Any }
export interface Events extends GeneratedEvents { "inbox.changed": any; "nodes.changed": any; "transfers.changed": any }
export interface NodeInfo extends GeneratedNode { latencyMs?: number | null }
export type MarkdownInline = { inline: "text" | "code"; text: string } | { inline: "emphasis" | "strong" | "strike"; content: MarkdownInline[] } | { inline: "link"; href: string; host?: string; content: MarkdownInline[] } | { inline: "break" };
export type MarkdownItem = { done?: boolean; blocks: MarkdownBlock[] };
export type MarkdownBlock =
  | { block: "paragraph"; content: MarkdownInline[] }
  | { block: "heading"; level: number; content: MarkdownInline[] }
  | { block: "code"; language: string; text: string }
  | { block: "quote"; blocks: MarkdownBlock[] }
  | { block: "list"; start?: number; items: MarkdownItem[] }
  | { block: "table"; align: string[]; header: MarkdownInline[][]; rows: MarkdownInline[][][] }
  | { block: "rule" };
export interface AnsiStyle { color?: string; background?: string; bold?: boolean; dim?: boolean; italic?: boolean; underline?: boolean; strike?: boolean; inverse?: boolean }
export interface AnsiRun extends AnsiStyle { text: string }
export interface UsageSum { requests: number; inputTokens: number; outputTokens: number; cacheReadTokens: number; cacheWriteTokens: number; costUsd: number; unpriced: number }
export interface UsageRow extends UsageSum { day: string; agent: string; sessionKey: string; model: string }
