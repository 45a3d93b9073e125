import type { ApiCall, AppConnection, DeliveryRecord, SimMessage } from "@larkline/feishu-simulator";

export interface PersonView {
  openId: string;
  name: string;
}

export interface ChatView {
  chatId: string;
  type: "p2p" | "group";
  name: string;
  members: string[];
  bots: string[];
}

/** All that the page shows; sent when it connects. */
export interface PlaygroundState {
  apps: readonly AppConnection[];
  people: PersonView[];
  chats: ChatView[];
  messages: readonly SimMessage[];
  calls: readonly ApiCall[];
  deliveries: readonly DeliveryRecord[];
  /** Armed faults. */
  faults: number;
}

/** What the event stream tells the page. */
export type PlaygroundEvent =
  | { type: "state"; state: PlaygroundState }
  | { type: "message"; message: SimMessage }
  | { type: "call"; call: ApiCall; faults: number }
  | { type: "delivery"; delivery: DeliveryRecord }
  | { type: "apps"; apps: readonly AppConnection[] }
  | { type: "person"; person: PersonView }
  | { type: "chat"; chat: ChatView }
  | { type: "faults"; faults: number };

export type { ApiCall, AppConnection, DeliveryRecord, SimMessage };
