import { createContext, useContext } from "react";

/** A function that opens the form for a new run; the page has one such form. */
export const OpenNewRun = createContext<() => void>(() => undefined);

export const useOpenNewRun = () => useContext(OpenNewRun);
