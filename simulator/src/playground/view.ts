import type {
  ApiCall,
  AppConnection,
  CardClickResult,
  DeliveryRecord,
  LimitRefusal,
  SimCard,
  SimCardOperation,
  SimCardView,
  SimMessage,
} from "../index.ts";

export interface PersonView {
  openId: string;
  name: string;
}

export interface ChatView {
  chatId: string;
  type: "p2p" | "group";
  /** Each message outside of a thread opens one. */
  topic: boolean;
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
  refusals: readonly LimitRefusal[];
  /** Calls of this month that count against the tenant's quota. */
  monthCalls: number;
  /** Armed faults. */
  faults: number;
}

/** What was done to a card, in short. */
export interface CardFacts extends Pick<SimCard, "cardId" | "sequence" | "streaming"> {
  frames: number;
  operations: number;
  /** The latest of them, oldest first. */
  latest: readonly SimCardOperation[];
}

/** What the event stream tells the page. */
export type PlaygroundEvent =
  | { type: "state"; state: PlaygroundState }
  | { type: "message"; message: SimMessage }
  | { type: "call"; call: ApiCall; faults: number; monthCalls: number }
  | { type: "refusal"; refusal: LimitRefusal }
  | { type: "delivery"; delivery: DeliveryRecord }
  | { type: "apps"; apps: readonly AppConnection[] }
  | { type: "person"; person: PersonView }
  | { type: "chat"; chat: ChatView }
  | { type: "faults"; faults: number };

export type { ApiCall, AppConnection, CardClickResult, DeliveryRecord, LimitRefusal, SimCardView, SimMessage };
