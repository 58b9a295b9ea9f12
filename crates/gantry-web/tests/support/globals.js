// What modules of the page look for when they load, for tests that run without a browser.

const store = new Map();
Object.assign(globalThis, {
  location: { protocol: "http:", host: "127.0.0.1:7770", origin: "http://127.0.0.1:7770", pathname: "/", search: "" },
  localStorage: {
    getItem: (/** @type {string} */ key) => store.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => void store.set(key, value),
    removeItem: (/** @type {string} */ key) => void store.delete(key),
  },
  reportError: (/** @type {unknown} */ error) => {
    throw error;
  },
});
