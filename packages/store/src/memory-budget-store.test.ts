import { describeBudgetStore } from "./budget-store.suite.ts";
import { createMemoryBudgetStore } from "./memory-budget-store.ts";

describeBudgetStore("memory", async () => {
  const store = createMemoryBudgetStore();
  return { store, elsewhere: store, close: async () => undefined };
});
