import { button, element } from "./element.ts";
import { lastWritten, type Store } from "./store.ts";
import type { Words } from "./words.ts";

export interface FaultParts {
  store: Store;
  words: Words;
  act: (path: string, body?: object) => Promise<boolean>;
}

const kinds = [
  ["failCalls", "error"],
  ["limitCalls", "limit"],
  ["slowCalls", "slow"],
  ["loseAnswers", "lost"],
] as const;

/** The switches for faults. */
export function faultPanel({ store, words, act }: FaultParts): { root: HTMLElement; update(): void } {
  const times = element("input", { type: "number", min: "1", max: "100", value: "3", inputmode: "numeric" });
  const armed = element("span", { class: "armed", role: "status" });
  const clear = button(words.clearFaults, {}, () => void act("clear-faults"));
  const redeliver = button(words.redeliverLast, {}, () => {
    const last = lastWritten(store.state);
    if (last !== undefined) void act("redeliver", { messageId: last.messageId });
  });
  const arm = (kind: string): void => void act("faults", { kind, times: Number(times.value) });
  const transport = transportSwitch({ store, words, act });
  const root = element("section", { class: "box", "aria-label": words.faults }, [
    element("h3", {}, [words.faults]),
    element("div", { class: "buttons" }, [
      redeliver,
      button(words.dropConnection, {}, () => void act("drop-connections")),
      button(words.expireToken, {}, () => void act("expire-tokens")),
    ]),
    element("label", { class: "row" }, [words.times, times]),
    element(
      "div",
      { class: "buttons" },
      kinds.map(([word, kind]) => button(words[word], {}, () => arm(kind))),
    ),
    element("div", { class: "row" }, [armed, clear]),
    transport.root,
  ]);
  const update = (): void => {
    const { faults } = store.state;
    armed.textContent = faults > 0 ? words.armed.replace("{n}", String(faults)) : "";
    clear.hidden = faults === 0;
    redeliver.toggleAttribute("disabled", lastWritten(store.state) === undefined);
    transport.update();
  };
  update();
  return { root, update };
}

function transportSwitch({ store, words, act }: FaultParts): { root: HTMLElement; update(): void } {
  const names = ["auto", "websocket", "webhook"] as const;
  const select = element(
    "select",
    { onchange: () => void act("transport", { transport: select.value }) },
    names.map((name) => element("option", { value: name }, [words[name]])),
  );
  return {
    root: element("label", { class: "row" }, [words.transport, select]),
    update() {
      const chosen = store.state.apps[0]?.transport;
      if (chosen !== undefined) select.value = chosen;
    },
  };
}
