// The types of the protocol, for the type checker alone. The gateway does not serve this file.
export type * from "../../../docs/protocol.d.ts";
